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
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/bell"
)

const messageTail = 5

func explain(reason string, log *process.Log) string {
	if tail := log.Message(messageTail); tail != "" {
		return reason + "; its last output:\n" + tail
	}
	return reason
}

func adviseStart(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return err.Error() + "; install the runtime's program, or set the runtime's command to where it is"
	case errors.Is(err, fs.ErrPermission):
		return err.Error() + "; the runtime's program must be a file that may be executed"
	}
	return err.Error()
}

func lasting(err error) bool {
	return runtime.Permanent(err) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// hearOut waits briefly for a permanent failure in the log: the answer may come first.
func hearOut(ctx context.Context, log *process.Log) {
	for pause := time.Millisecond; pause < 200*time.Millisecond && runtime.Hopeless(log.Message(math.MaxInt)) == ""; pause *= 2 {
		if bell.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// neverHad reports whether a server answered until the start timed out, but had none of the probed paths.
func neverHad(err error) bool { return errors.Is(err, errTimeout) && runtime.Missing(err) }

func because(err error, log *process.Log) string {
	reason := err.Error()
	switch {
	case neverHad(err):
		reason += "; to the end it had none of the probed paths: a server that does not speak OpenAI's API is run with the runtime http"
	case errors.Is(err, errTimeout):
		reason += "; raise the start timeout if it only needs more time"
	}
	if !runtime.Permanent(err) {
		return reason
	}
	if said := runtime.Hopeless(log.Message(math.MaxInt)); said != "" && !strings.Contains(reason, said) {
		reason += "; it says: " + said
	}
	return reason
}

var exitModel = fmt.Sprintf("exit status %d", api.ExitModel)

var exitShell = []string{"exit status 126", "exit status 127"}

// adviseExit advises on a runtime that ended before its first token; hopeless: another start would end the same way.
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
		advice, hopeless = "it can't use its model: mend the file, name another, or have another runtime serve it", true
	case slices.Contains(exitShell, status):
		advice, hopeless = "a shell did not find the program, or it may not be executed", true
	case status == "signal: killed":
		advice = "the system kills who needs more memory than there is: give it more, or take a smaller model"
	}
	return fmt.Sprintf("the runtime ended before it was ready: %s; %s", status, advice), hopeless || said != ""
}
