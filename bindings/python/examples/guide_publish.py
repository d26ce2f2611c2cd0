"""Publishes one reading, and another on request."""

import sys

import weir

try:
    with weir.Producer("/home") as home:
        name = home.publish("/home/kitchen", b"21.5\n").wait()
        print("published", name, flush=True)
        while True:
            request = home.request().wait()  # a request for an unpublished name
            if request.name == "/home/attic":
                home.publish(request.name, b"31.0\n").wait()
            else:
                request.refuse()
except weir.WeirError as error:
    sys.exit(f"guide_publish: {error}")
except KeyboardInterrupt:
    pass  # Ctrl-C ends it
