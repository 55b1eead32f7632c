"""Steps of training compiled for chips that are not here: what they need, and what bounds them."""

NO_TEACHER = "a step that asks a teacher cannot be compiled: leave its loss term out, or take another objective"
