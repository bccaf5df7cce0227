"""The stubs of the native part beside what it has."""

import ast
import pathlib
import unittest

import casemate
from casemate import _casemate


class Stubs(unittest.TestCase):
    def test_the_stubs_have_what_the_module_has(self):
        text = pathlib.Path(casemate.__file__).with_name("_casemate.pyi").read_text()
        told = {node.name: node for node in ast.parse(text).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        public = {name for name in dir(_casemate) if not name.startswith("_")}
        self.assertEqual(set(told), public)
        for name, node in told.items():
            if isinstance(node, ast.FunctionDef):
                self.compare(name, node, getattr(_casemate, name), 0)
                continue
            members = {member.name: member for member in node.body if isinstance(member, ast.FunctionDef)}
            there = {member for member in vars(getattr(_casemate, name)) if not member.startswith("__")}
            self.assertEqual(set(members) - {"__new__"}, there, name)
            for member, function in members.items():
                found = getattr(getattr(_casemate, name), member)
                if callable(found) and member != "__new__":
                    static = any(getattr(line, "id", "") == "staticmethod" for line in function.decorator_list)
                    self.compare(f"{name}.{member}", function, found, 0 if static else 1)

    def compare(self, name, node, found, skipped):
        words = found.__text_signature__.strip("()").split(", ")
        words = [word.split("=")[0].lstrip("$") for word in words if word not in ("", "/", "*", "$self")]
        args = node.args
        names = [argument.arg for argument in args.posonlyargs + args.args + args.kwonlyargs][skipped:]
        self.assertEqual([word.rstrip("_") for word in names], [word.rstrip("_") for word in words], name)
