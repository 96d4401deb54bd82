package daemon

import (
	"io"
	"os"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

func parseLevel(s string) (zerolog.Level, error) { return zerolog.ParseLevel(s) }

// newLogger returns the logger that a configuration asks for. Format auto is
// text on a terminal and JSON elsewhere.
func newLogger(w io.Writer, format, level string) zerolog.Logger {
	lvl, err := parseLevel(level)
	if err != nil {
		lvl = zerolog.InfoLevel
	}
	if format == "auto" {
		format = "json"
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			format = "console"
		}
	}
	if format == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000"}
	}
	return zerolog.New(w).Level(lvl).With().Timestamp().Logger()
}

// events returns the hook through which the rooms below log.
func events(log zerolog.Logger) func(string, ...any) {
	return func(message string, pairs ...any) {
		log.Warn().Fields(pairs).Msg(message)
	}
}
