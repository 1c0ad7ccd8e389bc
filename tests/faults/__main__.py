import sys

from tests.faults.run_table import main

sys.exit(main(sys.argv[1:]))
