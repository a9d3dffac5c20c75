package functions_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// upperCase is a user's handler: it converts the runtime's answers to upper case.
func upperCase(mode string) int {
	if mode == "exits" {
		fmt.Println("no configuration found")
		return 3
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/crash" {
			os.Exit(4)
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, os.Getenv("OPENAI_BASE_URL")+"/chat/completions", r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		req.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, "%s for %s", strings.ToUpper(string(raw)), os.Getenv("ROUSE_MODEL_NAME"))
	})
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
	return 1
}

// serveCounts listens at a Unix socket, and answers each connection with the number of connections so far.
func serveCounts(path string) int {
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("loaded")
	for n := 1; ; n++ {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		fmt.Fprintln(c, n)
		_ = c.Close()
	}
}

// runCRIU obeys criu's command line: an image is the saved process's own command line, which restore runs again. It records
// each call in the file calls of the folder $FAKE. The files fails and dies there name a command that fails, or that is killed after half
// of its work.
func runCRIU(args []string) int {
	told := func(name string) string {
		raw, _ := os.ReadFile(filepath.Join(os.Getenv("FAKE"), name))
		return string(raw)
	}
	if calls, err := os.OpenFile(filepath.Join(os.Getenv("FAKE"), "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(calls, args)
	}
	option := func(name string) string {
		if k := slices.Index(args, name); k >= 0 {
			return args[k+1]
		}
		return ""
	}
	image := filepath.Join(option("-D"), "pages.img")
	switch args[0] {
	case told("dies"):
		_ = os.WriteFile(image, []byte("half"), 0o644)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case told("fails"):
		log := "Error (criu/util.c:1): rlimit: Can't setup\n(00.1) Error (criu/sk-unix.c:874): unix: External socket\nError (criu/cr-dump.c:2): FAILED\n"
		_ = os.WriteFile(filepath.Join(option("-D"), option("-o")), []byte(log), 0o644)
		return 1
	case "dump":
		line, err := os.ReadFile("/proc/" + option("-t") + "/cmdline")
		if err != nil || os.WriteFile(image, line, 0o644) != nil {
			return 1
		}
	case "restore":
		line, err := os.ReadFile(image)
		argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if err == nil {
			err = syscall.Exec(argv[0], argv, []string{"SNAPSHOT_TEST=server"})
		}
		fmt.Println(err)
		return 1
	}
	return 0
}
