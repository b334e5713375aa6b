"""Kafka's record batches: read, verified, made; and records in the one form made of the other.

    header      the 61 bytes at the begin: what a batch says of itself
    records     what is in it: whether it is sound, and where each record's fields are
    varints     how numbers are written
    codecs      the four compressions, each within a bound
    to_text     records of a batch as the text that HTTP's clients read
    from_text   records that HTTP's clients wrote as a batch
    subsets     a batch without some of its records, and one without any
    sound       whether a batch that a producer sends is taken
    shown       the bytes of what a fetch shows
    times       where a time stands in a topic

Source: Kafka's protocol guide, "Record Batch" (magic 2); KIP-32, KIP-98, KIP-107.  Sans-IO; nothing here knows a
topic.  What decompresses, and the CRC, come from libraries that are imported when a first batch is there.
"""
