# An image that runs `albertkit serve` on a CPU, without PyTorch. tests/project/test_dockerfile.py checks each line without Docker.
#
#     docker build --tag albertkit .
#     docker run --publish 127.0.0.1:8080:8080 albertkit
#     docker run --publish 8080:8080 --volume "$PWD/models:/models:ro" --volume "$PWD/key:/run/secrets/key:ro" \
#         albertkit serve --key-file /run/secrets/key --model reviews=/models/reviews
#
# Each option can also be an environment variable; docs/how-to/deploy.md has files for Compose and Kubernetes.

# Build the wheel in a separate stage, so that the image contains neither the sources nor the build tools.
FROM python:3.11-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /tmp/wheels
RUN python -m pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /tmp/wheels/*.whl)[serve]" && rm -rf /tmp/wheels /tmp/constraints.txt
RUN useradd --create-home --uid 10001 albertkit
USER albertkit
WORKDIR /home/albertkit
# The server reads models of the Hugging Face hub only from a mounted cache. It never downloads them.
ENV HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1 ALBERTKIT_SERVE_HOST=0.0.0.0
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=15s --start-period=60s CMD python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=12)"
STOPSIGNAL SIGTERM
ENTRYPOINT ["albertkit"]
CMD ["serve"]
