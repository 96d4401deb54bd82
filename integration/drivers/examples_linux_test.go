package drivers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exampleOf says which kind a page is of; host needs none.
var exampleOf = map[string]string{"bwrap": "bwrap", "oci": "runc", "gvisor": "runsc", "docker": "docker", "host": ""}

var (
	commandsOf = regexp.MustCompile("(?s)```sh\n(.*?)```")
	outputOf   = regexp.MustCompile("(?s)```text\n(.*?)```")
)

// TestExamples: what a page says to type prints what the page says.
func TestExamples(t *testing.T) {
	pages, err := filepath.Glob("../../examples/*.md")
	if err != nil || len(pages) != len(exampleOf)+1 {
		t.Fatalf("%v, %v", pages, err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if name == "README" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			of, known := exampleOf[name]
			if !known {
				t.Fatal("a page of no kind")
			}
			env := append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
			if of != "" {
				kinds[of].want(t)
			}
			if of == "docker" {
				env = append(env, "DOCKER_HOST=unix://"+dockerd(t))
			}
			typed(t, page, env)
		})
	}
}

func typed(t *testing.T, page string, env []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	commands, output := commandsOf.FindSubmatch(text), outputOf.FindSubmatch(text)
	if commands == nil || output == nil {
		t.Fatal("the page has no commands or no output")
	}
	cmd := exec.Command("sh", "-e")
	cmd.Stdin, cmd.Env = strings.NewReader(string(commands[1])), env
	var words strings.Builder
	cmd.Stderr = &words
	got, err := cmd.Output()
	if err != nil || string(got) != string(output[1]) {
		t.Errorf("%v: %s\n%s\nwant\n%s", err, got, words.String(), output[1])
	}
}
