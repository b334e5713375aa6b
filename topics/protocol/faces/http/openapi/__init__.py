"""`/v0/openapi.json`: nothing here is loaded before somebody asks for it.

document                                the document, made of the server's own tables and of these
operations                              the tables of all nouns
topics records queues routers watch     what no type can say of one noun: what each route is for, what each field
server cluster                          means, an example
operation words refusals                a route's row; words that nouns share; an example of each error
wording                                 schemas in the words that generators of clients know
"""
