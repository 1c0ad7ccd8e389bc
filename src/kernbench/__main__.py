from kernbench.cli import main

main()
