package goals

// shape is a way in which a process tries to survive its command. Each writes
// the ids of what must not survive to the file pids, then lives for minutes.
type shape struct{ name, command string }

// stay is a process that writes its id down and stays.
const stay = "sh -c 'echo $$ >> pids; exec sleep 300'"

// shapes are plain ones first; the bare ones leave nothing of their command in
// session, parent or environment.
var shapes = []shape{
	{"plain", stay + " & wait"},
	{"background", stay + " & sleep 300"},
	{"nohup", "nohup " + stay + " >/dev/null 2>&1 & sleep 300"},
	{"setsid", "setsid " + stay + " & sleep 300"},
	{"double fork", "( " + stay + " & ) & sleep 300"},
	{"setsid and fork", `setsid sh -c '( sh -c "echo \$\$ >> pids; exec sleep 300" & ) &' & sleep 300`},
	{"ignoring signals", "trap '' TERM HUP INT; " + stay + " & sleep 300"},
	{"closed output", "setsid " + stay + " >/dev/null 2>&1 </dev/null & sleep 300"},
	{"bare session", "env -i setsid " + stay + " & wait"},
	{"bare fork", "env -i setsid -f " + stay + "; sleep 300"},
	{"bare daemon", `env -i setsid sh -c '(env -i setsid -f sh -c "echo \$\$ >> pids; trap \"\" TERM; while :; do sleep 300; done" &)' & sleep 300`},
	{"bare and deaf", "trap '' TERM; env -i setsid -f sh -c 'echo $$ >> pids; while :; do sleep 300; done'; while :; do sleep 300; done"},
}
