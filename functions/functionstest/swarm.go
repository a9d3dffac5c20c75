package functionstest

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
)

// swarmScript starts processes that are hard to end; all ignore SIGTERM, SIGHUP and SIGINT. They are a separate session, a daemon (forked
// twice), a process that forks as long as it lives, one that writes output, and three chains. A chain forks and ends again and again so that
// no ID lives long. Each process ends by itself, after a minute or a number of generations.
const swarmScript = `
trap "" TERM HUP INT
chain() { [ "$1" -le 0 ] || (chain $(($1 - 1)) &) }
case "${1-}" in
chain) chain 3000; exit ;;
hop) [ "$2" -le 0 ] || setsid sh -c "$SWARM_SCRIPT" swarm hop $(($2 - 1)) & exit ;;
fork) for i in $(seq 400); do (sleep 60 &); done; exec sleep 60 ;;
esac
setsid sleep 60 &
(setsid sleep 60 &)
chain 3000
(setsid sh -c "$SWARM_SCRIPT" swarm chain &)
setsid sh -c "$SWARM_SCRIPT" swarm hop 1000 &
sh -c "$SWARM_SCRIPT" swarm fork &
(for i in $(seq 6000); do echo busy >&2; sleep 0.01; done) &
echo ready
wait
`

// swarm starts the swarm, with a mark in its environment, and returns once all of it has begun.
func swarm(mark string) error {
	cmd := exec.Command("sh", "-c", swarmScript, "swarm")
	cmd.Env = append(os.Environ(), "SWARM="+mark, "SWARM_SCRIPT="+swarmScript)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// Swarm lists the living processes of the swarm that a runtime started with the flags -grandchild=swarm and -pids=mark.
func Swarm(mark string) (pids []int, err error) {
	names, err := fs.Glob(os.DirFS("/proc"), "[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		environ, _ := os.ReadFile("/proc/" + name + "/environ") // empty for ended processes and those of other users
		pid, err := strconv.Atoi(name)
		if err == nil && bytes.Contains(environ, []byte("\x00SWARM="+mark+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
