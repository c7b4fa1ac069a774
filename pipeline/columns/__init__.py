"""Typed columns for records' values: schemas of Avro, JSON Schema and Protobuf as Arrow types,
values as Arrow arrays, and how a column follows a schema that changes. It needs no Spark.

May import: nothing of kstore.
"""
