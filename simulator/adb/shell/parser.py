"""The shell language's grammar: text to syntax tree."""

from __future__ import annotations

from distrl.simulator.adb.shell.control import UNSUPPORTED
from distrl.simulator.adb.shell.lexer import DELIMITERS, MAX_DEPTH, Lexer, ShellSyntaxError, is_name
from distrl.simulator.adb.shell.syntax import (
    AndOr,
    Case,
    Command,
    For,
    Function,
    Group,
    If,
    Pipeline,
    Redirect,
    Redirected,
    Sequence,
    Simple,
    Text,
    While,
    Word,
)

_OPENERS = ("{", "if", "for", "while", "until", "case", "function")
_CLOSERS = ("}", "then", "elif", "else", "fi", "do", "done", "esac")
_REDIRECTS = ("<<-", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">")
MAX_PROGRAM = 1 << 20
"""Most characters of a program."""


def parse(text: str, depth: int = 0) -> Sequence:
    """The syntax tree of a program.

    Raises:
        ShellSyntaxError: If `text` is no program.
    """
    if len(text) > MAX_PROGRAM:
        raise ShellSyntaxError("syntax error: program too long")
    parser = _Parser(text, depth)
    found = parser.sequence()
    if not parser.ended:
        raise parser.unexpected_word()
    return found


class _Parser(Lexer):
    def program(self, text: str) -> Sequence:
        return parse(text, self.depth + 1)

    def enclosed(self) -> Sequence:
        self._deeper()
        body = self.sequence()
        if not self.accept(")"):
            raise self.unexpected()
        self.depth -= 1
        return body

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ShellSyntaxError("syntax error: nesting too deep")

    def lines(self) -> None:
        """Skips blanks, comments and line ends."""
        self.blanks()
        while self.accept("\n"):
            self.blanks()

    def reserved(self, words: tuple[str, ...]) -> str:
        """Which of `words` comes next as a whole, "" if none."""
        for word in words:
            end = self.at + len(word)
            if self.starts(word) and (end >= len(self.text) or self.text[end] in DELIMITERS):
                return word
        return ""

    def keyword(self, word: str) -> None:
        """Reads `word`, which must come next."""
        self.lines()
        if not self.reserved((word,)):
            raise self.unexpected_word()
        self.at += len(word)

    def unexpected_word(self) -> ShellSyntaxError:
        """The error that the word that comes next has no place here."""
        if self.ended or self.peek() in DELIMITERS:
            return self.unexpected()
        end = self.at
        while end < len(self.text) and self.text[end] not in DELIMITERS:
            end += 1
        return ShellSyntaxError(f"syntax error: unexpected '{self.text[self.at : end]}'")

    def sequence(self) -> Sequence:
        items: list[tuple[AndOr, bool]] = []
        while True:
            self.lines()
            if self.ended or self.starts(")") or self.starts(";;") or self.reserved(_CLOSERS):
                return Sequence(tuple(items))
            found = self.and_or()
            self.blanks()
            background = self.starts("&") and not self.starts("&&")
            items.append((found, background))
            if background or (self.starts(";") and not self.starts(";;")):
                self.at += 1
            elif not (self.ended or self.peek() in "\n);"):
                raise self.unexpected_word()

    def block(self) -> Sequence:
        """A sequence of at least one command."""
        found = self.sequence()
        if not found.items:
            raise self.unexpected_word()
        return found

    def and_or(self) -> AndOr:
        first = self.pipeline()
        rest: list[tuple[str, Pipeline]] = []
        while True:
            self.blanks()
            operator = self.peek(2)
            if operator not in ("&&", "||"):
                return AndOr(first, tuple(rest))
            self.at += 2
            self.lines()
            rest.append((operator, self.pipeline()))

    def pipeline(self) -> Pipeline:
        negated = False
        while self.reserved(("!",)):
            negated = not negated
            self.at += 1
            self.blanks()
        commands = [self.command()]
        while True:
            self.blanks()
            if not self.starts("|") or self.starts("||"):
                return Pipeline(tuple(commands), negated)
            self.at += 1
            self.lines()
            commands.append(self.command())

    def command(self) -> Command:
        self.blanks()
        if self.ended or self.reserved(_CLOSERS):
            raise self.unexpected_word()
        if self.reserved(("select",)):
            raise ShellSyntaxError(f"select: {UNSUPPORTED}")
        if self.starts("(("):
            return Simple((), ((Text("let"),), (self._arithmetic(quoted=True),)), ())
        opener = "(" if self.starts("(") else self.reserved(_OPENERS)
        if not opener:
            return self.simple()
        self.at += len(opener)
        self._deeper()
        found = self.compound(opener)
        self.depth -= 1
        redirects: list[Redirect] = []
        while True:
            self.blanks()
            redirect = self.redirect()
            if redirect is None:
                return Redirected(found, tuple(redirects)) if redirects else found
            redirects.append(redirect)

    def compound(self, opener: str) -> Command:
        if opener == "(":
            body = self.block()
            if not self.accept(")"):
                raise self.unexpected()
            return Group(body, subshell=True)
        if opener == "{":
            body = self.block()
            self.keyword("}")
            return Group(body, subshell=False)
        if opener == "if":
            return self._if()
        if opener == "for":
            return self._for()
        if opener == "case":
            return self._case()
        if opener == "function":
            self.blanks()
            name = self._plain()
            self.blanks()
            if self.accept("("):
                self.blanks()
                self.accept(")")
            return self._function(name)
        condition = self.block()
        return While(condition, self._do(), until=opener == "until")

    def _do(self) -> Sequence:
        self.keyword("do")
        body = self.block()
        self.keyword("done")
        return body

    def _if(self) -> If:
        branches, otherwise = [], None
        while True:
            condition = self.block()
            self.keyword("then")
            branches.append((condition, self.block()))
            self.lines()
            if self.reserved(("elif",)):
                self.at += 4
                continue
            if self.reserved(("else",)):
                self.at += 4
                otherwise = self.block()
            self.keyword("fi")
            return If(tuple(branches), otherwise)

    def _plain(self) -> str:
        word = self.word()
        text = "".join(part.text for part in word if isinstance(part, Text))
        if not word or not is_name(text.replace("-", "_")):
            raise self.unexpected_word()
        return text

    def _for(self) -> For:
        self.blanks()
        name, words = self._plain(), None
        self.lines()
        if self.reserved(("in",)):
            self.at += 2
            words = []
            while True:
                self.blanks()
                word = self.word()
                if not word:
                    break
                words.append(_literal(word))
        self.blanks()
        self.accept(";")
        return For(name, None if words is None else tuple(words), self._do())

    def _case(self) -> Case:
        self.blanks()
        word = self.word()
        self.keyword("in")
        branches: list[tuple[tuple[Word, ...], Sequence]] = []
        while True:
            self.lines()
            if self.reserved(("esac",)):
                self.at += 4
                return Case(word, tuple(branches))
            self.accept("(")
            patterns = [self._pattern()]
            while self.accept("|"):
                patterns.append(self._pattern())
            if not self.accept(")"):
                raise self.unexpected_word()
            branches.append((tuple(patterns), self.sequence()))
            self.lines()
            if not self.accept(";;") and not self.reserved(("esac",)):
                raise self.unexpected_word()

    def _pattern(self) -> Word:
        self.blanks()
        found = self.word()
        self.blanks()
        if not found:
            raise self.unexpected_word()
        return found

    def _function(self, name: str) -> Function:
        self.lines()
        return Function(name, self.command())

    def simple(self) -> Command:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.blanks()
            redirect = self.redirect()
            if redirect is not None:
                redirects.append(redirect)
                continue
            word = self.word()
            if not word:
                break
            assigned = None if words else _assignment(word)
            if assigned is not None:
                if not assigned[1] and self.starts("("):
                    raise ShellSyntaxError(f"arrays: {UNSUPPORTED}")
                assignments.append(assigned)
                continue
            words.append(_literal(word))
            if len(words) == 1 and not assignments and not redirects and self._parentheses():
                return self._definition(word)
        if not (assignments or words or redirects):
            raise self.unexpected_word()
        if words[:1] == [(Text("[["),)] and words[-1] != (Text("]]"),) and self.peek(2) in ("&&", "||"):
            raise ShellSyntaxError(f"{self.peek(2)} inside [[ ]]: {UNSUPPORTED}")
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _parentheses(self) -> bool:
        """Reads `()` if that comes next."""
        start = self.at
        self.blanks()
        if self.accept("("):
            self.blanks()
            if self.accept(")"):
                return True
        self.at = start
        return False

    def _definition(self, word: Word) -> Function:
        first = word[0]
        if len(word) != 1 or not isinstance(first, Text) or first.quoted:
            raise ShellSyntaxError("syntax error: unexpected '('")
        return self._function(first.text)

    def redirect(self) -> Redirect | None:
        """A redirection, None when none comes next."""
        start = self.at
        while self.peek().isdecimal() and self.peek().isascii():
            self.at += 1
        digits = self.text[start : self.at]
        both = not digits and self.starts("&>")
        operator = "&>" if both else next((each for each in _REDIRECTS if self.starts(each)), "")
        if not operator or len(digits) > 2:
            self.at = start
            return None
        self.at += len(operator)
        self.blanks()
        quoted = self.peek() in ("'", '"', "\\")
        target = self.word()
        if not target:
            raise self.unexpected()
        if operator in ("<<", "<<-"):
            return self._heredoc(int(digits or 0), target, quoted, operator == "<<-")
        fd = int(digits) if digits else (0 if operator[0] == "<" else 1)
        return Redirect(fd, ">" if operator == ">|" else operator, target)

    def _heredoc(self, fd: int, mark: Word, quoted: bool, tabs: bool) -> Redirect:
        """Reads a here-document ahead: its lines are cut out of the text behind this line."""
        name = "".join(part.text for part in mark if isinstance(part, Text))
        end = self.text.find("\n", self.at)
        if end < 0:
            raise ShellSyntaxError(f"here document '{name}' unclosed")
        lines, at = [], end + 1
        while True:
            if at >= len(self.text):
                raise ShellSyntaxError(f"here document '{name}' unclosed")
            stop = self.text.find("\n", at)
            stop = len(self.text) if stop < 0 else stop
            line = self.text[at:stop]
            at = stop + 1
            if tabs:
                line = line.lstrip("\t")
            if line == name:
                break
            lines.append(line + "\n")
        self.text = self.text[: end + 1] + self.text[at:]
        body = "".join(lines)
        return Redirect(fd, "<<", (Text(body, quoted=True),) if quoted else self.quoted_text(body))


def _assignment(word: Word) -> tuple[str, Word] | None:
    """`NAME=value` as name and value, None for another word."""
    first = word[0]
    if not isinstance(first, Text) or first.quoted or "=" not in first.text:
        return None
    name, _, value = first.text.partition("=")
    if not is_name(name):
        return None
    rest = (Text(value),) if value else ()
    return name, (*rest, *word[1:])


def _literal(word: Word) -> Word:
    """The word itself. Raises ShellSyntaxError if Android's shell would make several of it: `{a,b}`."""
    commas: list[bool] = []  # for each open brace, whether a comma came
    for part in word:
        for char in part.text if isinstance(part, Text) and not part.quoted else "":
            if char == "{":
                commas.append(False)
            elif char == "," and commas:
                commas[-1] = True
            elif char == "}" and commas and commas.pop():
                raise ShellSyntaxError(f"brace expansion: {UNSUPPORTED}")
    return word
