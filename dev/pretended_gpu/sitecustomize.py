"""Install the pretended GPU in every Python process that has this folder in PYTHONPATH."""

import pretended_gpu

pretended_gpu.install()
