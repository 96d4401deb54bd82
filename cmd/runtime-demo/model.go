package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// model is a source of turns behind OpenAI-compatible chat completions.
type model struct {
	url, name, key string
	client         *http.Client
	messages       []message
	asked          []call // calls of the last turn, in the order of its results
}

// message is one of a conversation.
type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newModel(url, name, key, prompt string) *model {
	return &model{url: strings.TrimSuffix(url, "/"), name: name, key: key, client: &http.Client{}, messages: []message{
		{Role: "system", Content: "You work in a sandbox through tools. Paths are relative to your own directory."},
		{Role: "user", Content: prompt},
	}}
}

// next tells the model the results of its calls and asks for more.
func (m *model) next(ctx context.Context, results []result) (turn, bool, error) {
	for i, r := range results {
		m.messages = append(m.messages, message{Role: "tool", Content: r.text, ToolCallID: m.asked[i].ID})
	}
	reply, err := m.complete(ctx)
	if err != nil {
		return turn{}, false, err
	}
	m.messages = append(m.messages, reply)
	t := turn{Say: shorten(strings.ReplaceAll(reply.Content, "\n", " "), 200)}
	for _, tc := range reply.ToolCalls {
		args := json.RawMessage(tc.Function.Arguments)
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		t.Calls = append(t.Calls, call{ID: tc.ID, Tool: tc.Function.Name, Args: args})
	}
	m.asked = t.Calls
	return t, len(t.Calls) > 0, nil
}

// complete makes one request.
func (m *model) complete(ctx context.Context) (message, error) {
	body, err := json.Marshal(map[string]any{"model": m.name, "messages": m.messages, "tools": schema()})
	if err != nil {
		return message{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if m.key != "" {
		req.Header.Set("Authorization", "Bearer "+m.key)
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return message{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return message{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return message{}, fmt.Errorf("model answered %s: %s", resp.Status, shorten(string(text), 200))
	}
	var answer struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return message{}, fmt.Errorf("model's answer: %w", err)
	}
	if len(answer.Choices) == 0 {
		return message{}, fmt.Errorf("model's answer has no choices")
	}
	return answer.Choices[0].Message, nil
}

// schema describes the tools to a model.
func schema() []any {
	property := func(kind, about string) any { return map[string]any{"type": kind, "description": about} }
	properties := map[string]any{
		"path":      property("string", "path, relative to your directory"),
		"content":   property("string", "text of the file"),
		"command":   property("string", "a line for /bin/sh"),
		"timeout_s": property("number", "end the command after so many seconds"),
		"repeat":    property("boolean", "send the input several times over"),
	}
	var out []any
	for _, t := range allTools() {
		out = append(out, map[string]any{"type": "function", "function": map[string]any{
			"name": t.name, "description": t.about,
			"parameters": map[string]any{"type": "object", "properties": properties, "required": t.required, "additionalProperties": false},
		}})
	}
	return out
}
