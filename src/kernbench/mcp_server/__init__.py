"""`kernbench mcp`: the workbench as tools for programs that edit kernels, over the Model Context Protocol."""
