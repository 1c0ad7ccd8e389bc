"""Tasks on a Ray cluster: what is sent to a node, what runs there, and who listens."""
