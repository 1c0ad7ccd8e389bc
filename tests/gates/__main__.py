import sys

from tests.gates.play import main

sys.exit(main(sys.argv[1:]))
