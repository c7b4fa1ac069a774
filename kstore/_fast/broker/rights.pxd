# A client's operations on a topic, as broker.state.security.authorizer.Rights caches them.

from libc.stdint cimport int16_t

cdef enum:
    MAY_READ = 1 << 3                       # bit n is Kafka's operation n
    MAY_WRITE = 1 << 4
    MAY_ACT_IN_CLUSTER = 1 << 9             # CLUSTER_ACTION
    MAY_GIVE_OFFSETS = 1 << 13              # REPLICATOR_WRITE (KIP-391)

# The operations that are allowed on the topic, as a bit field.
cdef inline int topic_rights(object rights, bytes name) except -1:
    found = (<dict>rights.topics).get(name)
    return rights.topic(name) if found is None else found

cdef enum:                                  # for the log of denials: Kafka's numbers
    PRODUCE_REQUEST = 0
    FETCH_REQUEST = 1
    TOPIC = 2                               # a resource's type
    CLUSTER = 4
    TRANSACTIONAL_ID = 5

# Log the denial of an operation (its bit); allowed operations cost nothing.
cdef inline int note_denied(
    object connection, int api_key, int right, int resource_type, bytes name
) except -1:
    connection.note_denied(api_key, right, resource_type, name)
    return 0
