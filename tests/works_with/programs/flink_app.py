"""Flink's connector for Kafka in a Table job: doubles the numbers of a topic into another one,
exactly once, by transactions that end with Flink's checkpoints. It runs until it is killed.

Arguments: folder of jars, bootstrap servers, source topic, target topic, folder for checkpoints,
and, to go on after a kill, the checkpoint to start from.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

jars, bootstrap, source, target, checkpoints, *restored = sys.argv[1:]
settings = {
    "pipeline.jars": ";".join(f"file://{jar}" for jar in sorted(Path(jars).glob("*.jar"))),
    "parallelism.default": "2",
    "execution.checkpointing.interval": "500 ms",
    "execution.checkpointing.dir": f"file://{checkpoints}",
    "execution.checkpointing.storage": "filesystem",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
if restored:
    settings["execution.state-recovery.path"] = f"file://{restored[0]}"
configuration = Configuration()
for name, value in settings.items():
    configuration.set_string(name, value)
table = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
)
table.execute_sql(f"""
    CREATE TABLE numbers (number BIGINT, written TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
    WITH ('connector' = 'kafka', 'topic' = '{source}', 'format' = 'json',
          'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = '{source}-flink',
          'scan.startup.mode' = 'earliest-offset')
""")
table.execute_sql(f"""
    CREATE TABLE doubled (number BIGINT, twice BIGINT)
    WITH ('connector' = 'kafka', 'topic' = '{target}', 'format' = 'json', 'key.format' = 'json',
          'key.fields' = 'number', 'properties.bootstrap.servers' = '{bootstrap}',
          'properties.transaction.timeout.ms' = '60000',
          'sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = '{target}')
""")
table.execute_sql("INSERT INTO doubled SELECT number, 2 * number FROM numbers").wait()
