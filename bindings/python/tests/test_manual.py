import pathlib
import subprocess
import sys

import weir
from weir import _weir

HERE = pathlib.Path(__file__).parent


def test_keyword_arguments_are_those_of_the_tables():
    for options, table in [
        (weir.ConsumerOptions, _weir.consumer_options()),
        (weir.ProducerOptions, _weir.producer_options()),
    ]:
        # Includes the annotations of base classes.
        names = set(options.__annotations__)
        assert names == {row[0] for row in table}


def test_docstrings_say_what_options_mean():
    assert "retries: How often an Interest is sent again" in weir.get.__doc__
    assert "input_buffer:" in weir.Consumer.__doc__
    assert "output_buffer:" in weir.Producer.__doc__ and "0 to 64" in weir.put.__doc__
    assert "output_buffer:" not in weir.put.__doc__
    for name in weir.__all__:
        assert getattr(weir, name).__doc__, name


def test_options_take_values_of_python():
    import datetime

    for given in [
        {"lifetime": 0.5},
        {"lifetime": datetime.timedelta(seconds=1)},
        {"lifetime": "500ms"},
        {"input_buffer": 1 << 20},
        {"input_buffer": "1MiB"},
        {"reliable": False},
        {"fresh": True, "retries": 3},
    ]:
        weir.Consumer(**given)


def test_types_hold():
    package = pathlib.Path(weir.__file__).parent
    assert (package / "py.typed").exists()
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "python"]
    checked = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_readme_says_what_happens(capsys):
    text = (HERE.parent / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "hello" in capsys.readouterr().out
