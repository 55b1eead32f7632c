"""Charts of several curves in TensorBoard's tab of custom scalars: all languages beside each other."""

from collections.abc import Mapping
from typing import Any


def layout(charts: Mapping[str, Mapping[str, str]]) -> Any:
    """A summary that lays out charts.

    Args:
        charts: regular expressions of the tags of a chart, by its title, by the title of its category.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    categories = [
        layout_pb2.Category(
            title=category,
            chart=[
                layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=[tags]))
                for title, tags in each.items()
            ],
        )
        for category, each in charts.items()
    ]
    tensor = make_tensor_proto(layout_pb2.Layout(category=categories).SerializeToString())
    about = metadata.create_summary_metadata()
    return Summary(value=[Summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, metadata=about, tensor=tensor)])
