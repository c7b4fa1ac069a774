"""The web console: pages that show a cluster and change it, for a browser.

It runs in a process of its own and speaks Kafka's protocol through kstore.clients, with the
credentials of the user who is logged in. So the brokers' ACLs decide what a user sees and may do,
and a broker's event loop renders no page. `cluster` asks the cluster, `pages` renders the answers.

May import: kstore.cli, kstore.config, kstore.console.cluster, kstore.console.pages,
    kstore.errors.
"""
