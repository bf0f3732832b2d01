"""One clip: what it means, and how it is carried out."""
