package main

import "encoding/json"

// scenario is the built-in session: it unpacks the input, analyses it with
// shell commands, meets a few errors on purpose and streams a big file.
func scenario() source {
	return &script{turns: []turn{
		{Say: "bring the input in", Calls: calls("upload", toolArgs{Path: "input.tar"})},
		{Say: "unpack it", Calls: calls("exec", toolArgs{Command: "mkdir -p tree && (tar -xf input.tar -C tree 2>/dev/null || cp input.tar tree/) && echo unpacked"})},
		{Say: "look around", Calls: calls(
			"list", toolArgs{Path: "tree"},
			"exec", toolArgs{Command: "find tree -type f | wc -l | tr -d ' '"},
			"exec", toolArgs{Command: "find tree -type d | wc -l | tr -d ' '"},
			"exec", toolArgs{Command: "find tree -type f -name '*.go' -exec cat {} + | wc -l | tr -d ' '"},
		)},
		{Say: "analyse it", Calls: calls(
			"exec", toolArgs{Command: "find tree -type f -size +200k | sort | head -20"},
			"exec", toolArgs{Command: "grep -rhoE 'TODO\\([a-z]+\\)' tree | sort | uniq -c | sort -rn -k1,1 -k2 | head -10"},
			"exec", toolArgs{Command: "find tree -name '*_test.go' | wc -l | tr -d ' '"},
		)},
		{Say: "write a report and read it back", Calls: calls("write_file", toolArgs{Path: "reports/summary.md", Content: "# Summary\n\nThe tree was counted and searched.\n"})},
		{Calls: calls("read_file", toolArgs{Path: "reports/summary.md"}, "list", toolArgs{Path: "reports"})},
		{Say: "errors are results", Calls: calls(
			"read_file", toolArgs{Path: "reports/none.md"},
			"read_file", toolArgs{Path: "reports"},
			"list", toolArgs{Path: "reports/summary.md"},
			"exec", toolArgs{Command: "echo partial; exit 3"},
			"exec", toolArgs{Command: "kill -KILL $$"},
			"exec", toolArgs{Command: "echo before; sleep 30", Timeout: 0.5},
		)},
		{Say: "stream a big file in", Calls: calls("upload", toolArgs{Path: "big.bin", Repeat: true})},
		{Say: "and out", Calls: calls("download", toolArgs{Path: "big.bin"})},
		{Calls: calls("exec", toolArgs{Command: "wc -c < big.bin | tr -d ' '; rm big.bin"})},
		{Say: "done"},
	}}
}

// calls makes a turn's calls of pairs of name and arguments.
func calls(pairs ...any) []call {
	var out []call
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, call{Tool: pairs[i].(string), Args: compact(pairs[i+1].(toolArgs))})
	}
	return out
}

// compact leaves out what is not set.
func compact(a toolArgs) json.RawMessage {
	m := map[string]any{}
	for k, v := range map[string]string{"path": a.Path, "content": a.Content, "command": a.Command} {
		if v != "" {
			m[k] = v
		}
	}
	if a.Timeout > 0 {
		m["timeout_s"] = a.Timeout
	}
	if a.Repeat {
		m["repeat"] = true
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings, a number and a bool
	}
	return text
}
