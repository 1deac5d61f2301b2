"""Models for JavaScript: the folder that transformers.js opens."""
