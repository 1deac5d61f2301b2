"""Turn text into token ids with offsets, and train vocabularies; needs no torch."""
