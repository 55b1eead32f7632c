"""Packaging: what is installed, what it needs, and which folders travel in the wheel.

The building blocks in `gin/` and the experiments in `recipes/` stand at the root of the repository, where a reader
finds them; in the wheel they become `rembed_keras/gin` and `rembed_keras/recipes`, so that an installed `rembed` finds
them from any folder.

What runs is bounded from below alone, by the oldest releases that `make test-oldest` runs with, so that an environment
such as Colab's keeps what it has; a release is excluded once it is known to break something. constraints/tested.txt
names the releases that `make test` runs with, so that a test says the same tomorrow.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

RUNTIME = [
    "keras>=3.10.0",
    "tensorflow>=2.19.0",  # plain: tensorflow-cpu installs into the same folder, so never list both
    "tensorflow-text>=2.19.0",
    "keras-nlp>=0.21.1",  # its code is keras_hub, which it brings in lockstep
    "gin-config>=0.5.0",
    "tensorboard>=2.19.0",
    "grain>=0.2.10",
    "array-record>=0.8.1",
    "sentencepiece>=0.2.3",
    "tokenizers>=0.21.1",
    "click>=8.2.0",
    "lazy-loader>=0.6",
    "rich>=14.0.0",
    "numpy>=2.0.2",
    "scikit-learn>=1.6.1",
    "scipy>=1.15.3",
    "threadpoolctl>=3.6.0",
    "matplotlib>=3.10.0",
    "safetensors>=0.5.3",
    "h5py>=3.13.0",
    "protobuf>=5.29.1",
    "joblib>=1.5.0",
]
JAX = ["jax>=0.10.2"]
# the compiler for TPUs that jax[tpu] names, of that release alone: 0.7 GB; Linux on x86-64
TPU = ["jax>=0.10.2,<0.11", "libtpu>=0.0.42,<0.0.43"]
TASKS = [
    "tensorflow-datasets>=4.9.10,<4.10",
    "importlib-resources>=7.1.0,<8",  # that tensorflow-datasets needs to make a data set, and does not bring
    "seqeval>=1.2.2,<1.3",
]
CLEAN = ["rensa>=0.5.0,<0.6", "py3langid>=0.4.0,<0.5"]  # near duplicates, and whose language a paragraph is
PARQUET = ["pyarrow>=19,<26"]  # text and labelled examples as hubs of data sets keep them
HUB = ["huggingface-hub>=0.34,<3"]  # downloads models and uploads them
CLUSTER = ["submitit>=1.5.4,<2"]  # jobs of studies
WANDB = ["wandb>=0.31.0,<0.32"]
MLFLOW = ["mlflow-skinny>=3.17.2,<4"]  # without its server and its models
# what tests and benchmarks compare with, where installed
PEERS = ["torch>=2.13.0,<2.14", "transformers>=4.57.6,<5", "peft>=0.21.2,<0.22"]
TEST = [
    "pytest>=9.2.0,<10",
    "pytest-xdist>=3.8.0,<4",
    "hypothesis>=6.170.15,<7",
    "coverage>=7.17.3,<8",
    "build>=1.6.1,<2",
    "ruff==0.17.5",  # exact: another release formats and checks otherwise
    "mypy==2.4.1",
]

# What the owner of the repository settles: the licence of the whole, here, and its address, in CITATION.cff. The
# embedded text in rembed_keras/data/sample keeps its own licences, which travel beside it.
LICENSE = "Apache-2.0 AND MPL-2.0 AND MIT"
CLASSIFIERS = [
    "Development Status :: 4 - Beta",
    "Environment :: Console",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: Text Processing :: Linguistic",
    "Typing :: Typed",
]


def version() -> str:
    """The version that the package states, read without importing it."""
    source = (ROOT / "rembed_keras" / "__init__.py").read_text(encoding="utf-8")
    return next(line for line in source.splitlines() if line.startswith("__version__")).split('"')[1]


def project_urls() -> dict[str, str]:
    """Pages of the project, at the address that CITATION.cff gives; none while it gives none."""
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    given = [line.split('"')[1] for line in lines if line.startswith("repository-code:")]
    ends = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}
    return {name: f"{home}{end}" for home in given for name, end in ends.items()}


setup(
    name="rembed-keras",
    version=version(),
    description="Pre-train encoders that spend their parameters well: decoupled embeddings, kept and dropped capacity",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression=LICENSE,
    license_files=["LICENSE", "rembed_keras/data/sample/**/LICENSE", "rembed_keras/presets/**/LICENSE"],
    classifiers=CLASSIFIERS,
    project_urls=project_urls(),
    python_requires=">=3.11",
    packages=[*find_packages(include=["rembed_keras", "rembed_keras.*"]), "rembed_keras.gin", "rembed_keras.recipes"],
    package_dir={"rembed_keras.gin": "gin", "rembed_keras.recipes": "recipes"},
    package_data={
        "rembed_keras": ["py.typed", "**/*.pyi", "data/sample/**/*", "presets/**/*"],
        "rembed_keras.gin": ["**/*.gin"],
        "rembed_keras.recipes": ["**/*.gin"],
    },
    exclude_package_data={"": ["*.pyc"]},
    install_requires=RUNTIME,
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.19.0"],
        "jax": JAX,
        "tpu": TPU,
        "tasks": TASKS,
        "clean": CLEAN,
        "cluster": CLUSTER,
        "parquet": PARQUET,
        "hub": HUB,
        "onnx": ["tf2onnx>=1.17,<2", "onnx>=1.17,<2"],  # for Encoder.export(file, format="onnx"), on TensorFlow
        "plots": ["pydot>=4,<5"],  # for keras.utils.plot_model, which needs the program graphviz too
        "profile": ["tensorboard-plugin-profile>=2.24.2,<2.25"],
        "wandb": WANDB,
        "mlflow": MLFLOW,
        "peers": PEERS,
        "test": [*TEST, *JAX, *TASKS, *CLEAN, *CLUSTER, *PARQUET, *HUB],
    },
    entry_points={"console_scripts": ["rembed = rembed_keras.cli:main"]},
)
