package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// messageTail is how many lines of output are in a message.
const messageTail = 5

// explain adds the last lines of output.
func (s *Supervisor) explain(reason string) string {
	if tail := s.cfg.Log.Message(messageTail); tail != "" {
		return reason + "; its last output:\n" + tail
	}
	return reason
}

// adviseStart says what to do about a program that can't be executed.
func adviseStart(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return err.Error() + "; install the runtime's program, or set the runtime's command to where it is"
	case errors.Is(err, fs.ErrPermission):
		return err.Error() + "; the runtime's program must be a file that may be executed"
	}
	return err.Error()
}

// lasting says whether a program could not be executed for what another try does not change.
func lasting(err error) bool {
	return runtime.Permanent(err) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// hearOut waits for what a runtime says in its log of a failure that lasts: its answer may come before that, but
// not by much.
func (s *Supervisor) hearOut(ctx context.Context) {
	for pause := time.Millisecond; pause < 200*time.Millisecond && runtime.Hopeless(s.cfg.Log.Message(math.MaxInt)) == ""; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// neverHad says whether a server that answered, to the end of the time for its start, knew none of the paths that it was
// probed at: another start ends the same way.
func neverHad(err error) bool { return errors.Is(err, errTimeout) && runtime.Missing(err) }

// because says why a runtime that lives did not start: what to do where that took too long, and what its log says
// of a model that it can't use, for its answer need not.
func (s *Supervisor) because(err error) string {
	reason := err.Error()
	switch {
	case neverHad(err):
		reason += "; to the end it answered 404 to every probe: a server that does not speak OpenAI's API is run with the runtime http"
	case errors.Is(err, errTimeout):
		reason += "; raise the start timeout if it only needs more time"
	}
	if !runtime.Permanent(err) {
		return reason
	}
	if said := runtime.Hopeless(s.cfg.Log.Message(math.MaxInt)); said != "" && !strings.Contains(reason, said) {
		reason += "; it says: " + said
	}
	return reason
}

// exitModel is how a server ends that can't use its model: so it does the next time.
var exitModel = fmt.Sprintf("exit status %d", api.ExitModel)

// exitShell are how a shell ends that can't execute a program, or does not find it.
var exitShell = []string{"exit status 126", "exit status 127"}

// adviseExit says what to do about a runtime that ended before it generated a
// token, and whether another start ends the same way. What most of them say on a port
// that is taken, they have from the system.
func adviseExit(output, status string) (advice string, hopeless bool) {
	advice = "check its command, its options and the model"
	said := runtime.Hopeless(output)
	switch {
	case strings.Contains(strings.ToLower(output), "address already in use"):
		advice, said = "its port is taken: let it listen on $(PORT), or end who listens there", ""
	case status == "exit status 0":
		advice, said = "a model server must go on running, and not in the background", ""
	case said != "":
		advice = "another start ends the same way, for it says: " + said
	case status == exitModel:
		advice, hopeless = "it can't use its model: mend the file, or name another", true
	case slices.Contains(exitShell, status):
		advice, hopeless = "a shell did not find the program, or it may not be executed", true
	case status == "signal: killed":
		advice = "the system kills who needs more memory than there is: give it more, or take a smaller model"
	}
	return fmt.Sprintf("the runtime ended before it was ready: %s; %s", status, advice), hopeless || said != ""
}
