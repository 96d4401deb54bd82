package rpc

import "github.com/controld/controld/sandbox"

// ExecResult is that of exec.
type ExecResult struct{ Shell sandbox.ShellResult }

var execResultFields = []string{
	"stdout", "stderr", "exit_code", "signal", "reason",
	"stdout_omitted", "stderr_omitted", "background", "kill_pending", "duration_s",
}

func (r *ExecResult) decode(d *decoder) {
	o := object{fields: execResultFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		r.decodeField(d, field)
	}
	d.require(&o, "exit_code")
	d.require(&o, "reason")
}

func (r *ExecResult) decodeField(d *decoder, field string) {
	switch field {
	case "stdout":
		r.Shell.Stdout = d.content()
	case "stderr":
		r.Shell.Stderr = d.content()
	case "exit_code":
		r.Shell.ExitCode = int(d.integer(-1<<31, 1<<31-1))
	case "signal":
		r.Shell.Signal = d.str()
	case "reason":
		r.Shell.Reason = sandbox.Reason(d.str())
	case "stdout_omitted":
		r.Shell.StdoutOmitted = d.size()
	case "stderr_omitted":
		r.Shell.StderrOmitted = d.size()
	case "background":
		r.Shell.Background = d.boolean()
	case "kill_pending":
		r.Shell.KillPending = d.boolean()
	case "duration_s":
		r.Shell.Duration = d.seconds(maxDuration)
	}
}

func (r *ExecResult) encode(e encoder) {
	s := &r.Shell
	e.raw(`{"stdout":`)
	e.content(s.Stdout)
	e.raw(`,"stderr":`)
	e.content(s.Stderr)
	e.raw(`,"exit_code":`)
	e.integer(int64(s.ExitCode))
	e.strField("signal", s.Signal)
	e.raw(`,"reason":`)
	e.str(string(s.Reason))
	e.countField("stdout_omitted", s.StdoutOmitted)
	e.countField("stderr_omitted", s.StderrOmitted)
	e.trueField("background", s.Background)
	e.trueField("kill_pending", s.KillPending)
	e.raw(`,"duration_s":`)
	e.seconds(max(s.Duration, 0))
	e.raw("}")
}
