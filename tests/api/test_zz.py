import contextlib, pytest
def test_a(serve):
    server = serve("-k","gthread",AIJOBS_WEB_PROCESSES="1", AIJOBS_WEB_THREADS="4")
    with contextlib.ExitStack() as s:
        for _ in range(3):
            c=s.enter_context(server.connect()); c.sendall(b"GARBAGE\r\n\r\n")
        print("lingering", server.seconds_to_live())
    with contextlib.ExitStack() as s:
        for _ in range(50): s.enter_context(server.connect())
        print("idle", server.seconds_to_live())
