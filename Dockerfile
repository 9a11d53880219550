# `pipedec serve` on a CPU, not as root. PIP_EXTRA_INDEX_URL may name torch's index of CPU wheels, which are much smaller.
# docs/container.md says how to build it and to run it.
FROM python:3.12-slim
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir torch==2.13.0 '/src[serve,gguf]' && useradd --create-home pipedec
USER pipedec
# The kernels for this machine's CPU, if what the wheel carries is not the best for it. On another CPU they are made at the first start.
RUN python -c 'from pipedec_cli.model.engine.native.library import library; library()'
EXPOSE 8000
HEALTHCHECK --start-period=1m CMD python -c 'from urllib.request import urlopen; urlopen("http://127.0.0.1:8000/health")'
ENTRYPOINT ["pipedec", "serve", "--host", "0.0.0.0", "--model", "/model"]
