// Command spec prints docs/spec.md: what controld promises, each promise with a
// number, each number with the tests that fail when it is not kept.
//
//	go run ./integration/spec > docs/spec.md
//
// Bounds and times come from the code that enforces them, the tests of the
// protocol's rules from the tests themselves. The tests of this command fail
// when the page is not what it prints, when a test that it names is gone, and
// when the configuration has a number that it does not speak of.
//
// What does not belong here: rules of the wire, which are in docs/protocol.md.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := write(out, ".")
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
		os.Exit(1)
	}
}

const head = `# What controld promises

Made by ` + "`go run ./integration/spec > docs/spec.md`" + `; do not edit. Every promise has a number, and every number the tests
that fail when it is not kept, as "directory: test". ` + "`go test DIRECTORY -run TEST`" + ` runs one.

`

// write prints the page about the tree at root.
func write(w io.Writer, root string) error {
	found, err := scan(root)
	if err != nil {
		return err
	}
	protocol, err := os.ReadFile(root + "/docs/protocol.md")
	if err != nil {
		return err
	}
	io.WriteString(w, head)
	writePromises(w)
	writeNumbers(w, found)
	writeRules(w, found, string(protocol))
	return nil
}

func writePromises(w io.Writer) {
	io.WriteString(w, "## Promises\n\n| number | promise | how much is shown | tests |\n|---|---|---|---|\n")
	for i, p := range promises() {
		fmt.Fprintf(w, "| S%d | %s | %s | %s |\n", i+1, p.says, p.figure, list(p.tests))
	}
}

func writeNumbers(w io.Writer, found tests) {
	io.WriteString(w, "\n## Bounds and times\n\nThose with a name in the second column can be set; the value is that of a daemon which was told nothing.\n\n"+
		"| number | name | value | what it bounds | rule | tests |\n|---|---|---|---|---|---|\n")
	for i, n := range numbers() {
		name := ""
		if n.name != "" {
			name = "`--" + n.name + "`"
		}
		fmt.Fprintf(w, "| N%d | %s | %s | %s | %s | %s |\n", i+1, name, n.value, n.bounds, n.rule, list(n.testsIn(found)))
	}
}

// ruleDefined finds the rules that docs/protocol.md has.
var ruleDefined = regexp.MustCompile(`(?m)^- \*\*(P\d+\.\d+)\*\* `)

func writeRules(w io.Writer, found tests, protocol string) {
	io.WriteString(w, "\n## Rules of the wire\n\nTheir text is in [protocol.md](protocol.md).\n\n| rule | tests |\n|---|---|\n")
	for _, m := range ruleDefined.FindAllStringSubmatch(protocol, -1) {
		fmt.Fprintf(w, "| %s | %s |\n", m[1], list(found.of(m[1])))
	}
}

// list names tests in a cell, each directory once.
func list(ids []string) string {
	var b strings.Builder
	last := ""
	for _, id := range ids {
		dir, name, _ := strings.Cut(id, ": ")
		switch {
		case dir != last && last != "":
			fmt.Fprintf(&b, "; %s: ", dir)
		case dir != last:
			fmt.Fprintf(&b, "%s: ", dir)
		default:
			b.WriteString(", ")
		}
		b.WriteString(name)
		last = dir
	}
	return b.String()
}
