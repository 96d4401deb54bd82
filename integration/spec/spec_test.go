package main

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

const root = "../.."

// TestPageIsCurrent: docs/spec.md is what the command prints.
func TestPageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := write(&want, root); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want.Bytes()) {
		t.Error("docs/spec.md is not current: go run ./integration/spec > docs/spec.md")
	}
}

// TestNumbersHaveTests: each number names tests that are there, and each rule
// that a number is of stands in docs/protocol.md.
func TestNumbersHaveTests(t *testing.T) {
	found, err := scan(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range promises() {
		allThere(t, found, p.says, p.tests)
	}
	page, err := os.ReadFile(root + "/docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers() {
		if len(n.tests) == 0 && !strings.Contains(string(page), "**"+n.rule+"** ") {
			t.Errorf("%q is of rule %q, which the protocol does not have", n.bounds, n.rule)
			continue
		}
		allThere(t, found, n.bounds, n.testsIn(found))
	}
}

func allThere(t *testing.T, found tests, says string, ids []string) {
	t.Helper()
	if len(ids) == 0 {
		t.Errorf("%q has no test", says)
	}
	for _, id := range ids {
		if _, ok := found[id]; !ok {
			t.Errorf("%q names the test %q, which there is not", says, id)
		}
	}
}

// TestEverySettingIsThere: each number and time that an operator can set.
func TestEverySettingIsThere(t *testing.T) {
	there := make(map[string]bool)
	for _, n := range numbers() {
		there[n.name] = true
	}
	settings := reflect.TypeFor[daemon.Config]()
	for i := range settings.NumField() {
		field := settings.Field(i)
		if name := field.Tag.Get("koanf"); field.Type.Kind() == reflect.Int || field.Type.Kind() == reflect.Int64 {
			if !there[name] {
				t.Errorf("--%s is not spoken of", name)
			}
		}
	}
}

// TestProtocolNamesTheSameNumbers: where a rule of the protocol names a value,
// it is the one that the code has.
func TestProtocolNamesTheSameNumbers(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, n := range numbers() {
		said := regexp.MustCompile("`(?:--)?" + strings.ReplaceAll(n.name, "-", "[-_]") + "(?:_s)?` \\(([0-9][0-9,]*(?: [KMG]iB| min| s| h)?)[,)]").FindSubmatch(page)
		if n.name == "" || said == nil {
			continue
		}
		compared++
		if got := string(said[1]); got != n.value && got+" s" != n.value && got != seconds(n.value) {
			t.Errorf("--%s is %s, and the protocol says %s", n.name, n.value, got)
		}
	}
	if compared < 15 {
		t.Errorf("only %d numbers were found in the protocol", compared)
	}
}

// seconds writes "10 min" as "600".
func seconds(span string) string {
	d, err := time.ParseDuration(strings.ReplaceAll(strings.Replace(span, "min", "m", 1), " ", ""))
	if err != nil {
		return span
	}
	return count(int(d.Seconds()))
}

// TestCasesHaveTests: each of the 57 cases of docs/cases.md names tests that are
// there, or is one of the few that do not apply.
func TestCasesHaveTests(t *testing.T) {
	found, err := scan(root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, without := 0, 0
	for _, row := range regexp.MustCompile(`(?m)^\| (C[0-9].*?) \|.*\| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		n := casesIn(t, row[1])
		cases += n
		dir, named := "", 0
		for _, m := range regexp.MustCompile("`(?:([a-z0-9/]+): )?(Test\\w+)`").FindAllStringSubmatch(row[2], -1) {
			if m[1] != "" {
				dir = m[1]
			}
			allThere(t, found, row[1], []string{dir + ": " + m[2]})
			named++
		}
		if named == 0 && strings.Contains(row[2], "not applicable yet") {
			without += n
		} else if named == 0 && !strings.Contains(row[2], "the suite's") {
			t.Errorf("%s: neither a test nor a reason", row[1])
		}
	}
	if cases != 57 || without > 5 {
		t.Errorf("%d cases, %d without a test", cases, without)
	}
}

// casesIn counts the cases of "C01", "C11, C12" or "C30 - C32".
func casesIn(t *testing.T, cell string) int {
	t.Helper()
	if first, last, ok := strings.Cut(cell, " - "); ok {
		from, err := strconv.Atoi(first[1:])
		to, err2 := strconv.Atoi(last[1:])
		if err != nil || err2 != nil {
			t.Fatal(cell)
		}
		return to - from + 1
	}
	return strings.Count(cell, "C")
}

func TestWriting(t *testing.T) {
	for want, got := range map[string]string{
		"999": count(999), "1,048,576": count(1 << 20), "2,007": count(2007),
		"16 KiB": bytesOf(16 << 10), "1 MiB": bytesOf(1 << 20), "1000 bytes": bytesOf(1000),
		"1 min": span(time.Minute), "90 s": span(90 * time.Second), "24 h": span(24 * time.Hour), "168 h": span(604800 * time.Second),
		"no bound": unbounded(0),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got, want := list([]string{"a: T1", "a: T2", "b: T3"}), "a: T1, T2; b: T3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
