"""The screen's text, as styled spans. Nothing here imports Textual."""
