"""A terminal that nobody sits at: a program in a pty, and what its screen shows."""
import fcntl
import os
import pty
import select
import struct
import termios
import threading
import time

import pyte

from scripted import PATIENCE_S
from world import Process

ROWS, COLUMNS = 40, 120
# How long a screen must stand still before somebody could have read it.
READING_S = 0.7


class Answering(pyte.Screen):
    """Answers the questions that programs ask their terminal; without answers some wait for seconds."""
    def __init__(self, write):
        super().__init__(COLUMNS, ROWS)
        self.write_process_input = lambda text: write(text.encode())
        self.titles = []

    def set_title(self, param):
        self.titles.append(param)
        super().set_title(param)


class Terminal:
    def __init__(self, args, env, cwd):
        self._fd, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = Process(args, env=env, cwd=cwd, stdin=inside, stdout=inside, stderr=inside,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(inside)
        self._screen = Answering(lambda data: os.write(self._fd, data))
        self._stream = pyte.ByteStream(self._screen)
        self._news = threading.Condition()
        self._ended = False
        self._hang_up = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while data := self._some():
            with self._news:
                self._stream.feed(data)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _some(self):
        # A descriptor that somebody reads from is not closed by closing it.
        readable, _, _ = select.select([self._fd, self._hang_up[0]], [], [])
        if self._hang_up[0] in readable:
            os.close(self._fd)
            return b""
        try:
            return os.read(self._fd, 65536)
        except OSError:
            # How a pty says that nobody is on the other side.
            return b""

    def screen(self):
        with self._news:
            return "\n".join(line.rstrip() for line in self._screen.display if line.strip())

    def titles(self):
        with self._news:
            return list(self._screen.titles)

    def shows(self, text, seconds=PATIENCE_S):
        """Waits until the screen has the text (or meets the condition); gives the moment it did."""
        wanted = text if callable(text) else lambda screen: text in screen

        def found():
            return wanted("\n".join(line.rstrip() for line in self._screen.display))

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, seconds)
            there = found()
        assert there, f"the screen did not show {text!r} within {seconds} s:\n{self.screen()}"
        return time.monotonic()

    def type(self, text):
        os.write(self._fd, text.encode())

    def answer(self, question, *keys):
        """Answers a question of the host's, as a person who reads it first: what is typed sooner is thrown away."""
        self.shows(question)
        with self._news:
            while self._news.wait(READING_S):
                pass
        for key, then in keys:
            self.type(key)
            self.shows(then)

    def submit(self, text):
        """A prompt, once the screen has it, and Enter."""
        self.type(text)
        self.shows(text[:40])
        self.type("\r")

    def hang_up(self):
        """The window is closed."""
        os.write(self._hang_up[1], b"!")
        self._reader.join()

    def close(self):
        self.process.close()
