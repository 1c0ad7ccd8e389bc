"""What the screen says, as spans of text. Nothing here imports Textual."""
