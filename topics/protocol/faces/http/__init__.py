"""HTTP, without HTTP: what a request says, as a command, and what an outcome is, as an answer.

topics records queues routers watch     one noun each: its routes, bodies, answers, and how outcomes become
server cluster                          those answers
routes answers                          the tables of all nouns
route query negotiation errors          what every request has: a route, a query, a head, an envelope
fields checks rendering                 what nouns share
decoding strictness                     JSON as text, within bounds
append_body large_body                  the body that holds records, at once and piece by piece
sse websocket                           streams: the frames of both
openapi                                 the document of all that
"""
