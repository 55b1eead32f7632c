"""The file of a study of two arms, for tests of its plan and of its runs."""

STUDY = """\
from __gin__ import dynamic_registration
from rembed_keras.analysis import studies
WORKDIR = "study"
SEEDS = (0, 1)
studies.Study.workdir = %WORKDIR
studies.Study.seeds = %SEEDS
studies.Study.arms = [@wide/studies.Arm(), @one/studies.Arm()]
studies.Study.bindings = ["STEPS=30"]
wide/studies.Arm.name = "wide"
wide/studies.Arm.recipe = "recipes/quickstart.gin"
wide/studies.Arm.bindings = ["OUTPUT_EMBEDDING_DIM=512"]
one/studies.Arm.name = "one"
one/studies.Arm.recipe = "recipes/quickstart.gin"
one/studies.Arm.bindings = ["COUPLING=coupled", "OUTPUT_EMBEDDING_DIM=64"]
studies.Study.measures = [@loss/studies.Logged(), @topics/studies.Score()]
loss/studies.Logged.name = "loss"
topics/studies.Score.name = "topics"
topics/studies.Score.task = "topics"
studies.Study.hypotheses = [@h/studies.Hypothesis()]
h/studies.Hypothesis.name = "wide is better"
h/studies.Hypothesis.arm = "wide"
h/studies.Hypothesis.against = "one"
h/studies.Hypothesis.measure = "topics"
h/studies.Hypothesis.expected = "higher"
h/studies.Hypothesis.smallest_effect = 0.01
"""
