# One image for the extender and the agent: `linkwise serve`, `linkwise agent`.
#
#   docker build -t registry.example/linkwise:0.1.0 .
#
# What goes in is what requirements/run.lock names, by hash. The first stage makes wheels of it and of Linkwise; the second has Python and what runs.
FROM python:3.11-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src

# Dependencies first: they change less often than the code.
COPY requirements/run.lock requirements/run.lock
RUN pip wheel --require-hashes --only-binary=:all: --requirement requirements/run.lock --wheel-dir /wheels \
    && pip install --no-index --find-links /wheels hatchling

COPY pyproject.toml README.md LICENSE ./
COPY extender extender
COPY topology topology
# From the wheels alone, so in the locked versions; the lock also holds what builds Linkwise, and none of that is needed to run it.
RUN pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/linkwise \
    && pip --python /opt/linkwise/bin/python install --no-index --find-links /wheels linkwise


FROM python:3.11-slim

COPY --from=build /opt/linkwise /opt/linkwise
# On PATH the NVIDIA runtime's nvidia-smi is found as well (/usr/bin).
ENV PATH=/opt/linkwise/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["linkwise"]
CMD ["--help"]
