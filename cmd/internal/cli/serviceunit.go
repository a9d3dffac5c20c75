package cli

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type serviceOptions struct {
	// Program is an absolute path.
	Program string
	// Dir is the folder for relative paths in Args.
	Args   []string
	Dir    string
	System bool
	Drain  time.Duration
}

// unitMark is in each file that is written here.
const unitMark = "Written by rouse service install."

// Validate refuses values that a service's file can't express.
func (o serviceOptions) Validate() error {
	if !filepath.IsAbs(o.Program) {
		return fmt.Errorf("the program %q: want an absolute path", o.Program)
	}
	for _, word := range append([]string{o.Program, o.Dir}, o.Args...) {
		if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("the argument %q has a control character", word)
		}
	}
	return nil
}

func (o serviceOptions) command() []string {
	return append([]string{o.Program, "up", "--watch", "--log-format", "json"}, o.Args...)
}

func systemdUnit(o serviceOptions) string {
	var words []string
	for i, w := range o.command() {
		if i > 0 { // variables are not expanded in the program's path
			w = strings.ReplaceAll(w, "$", "$$")
		}
		words = append(words, quotedWord(w))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# %s rouse service uninstall removes it; rouse service install writes it anew.
[Unit]
Description=Rouse, language models that sleep while nobody asks
Documentation=https://github.com/rouse-dev/rouse
`, unitMark)
	if o.System {
		b.WriteString("After=network-online.target\nWants=network-online.target\n")
	}
	fmt.Fprintf(&b, `
[Service]
ExecStart=%s
Restart=on-failure
RestartSec=2
# The first signal lets requests finish; its children end with it.
KillMode=mixed
TimeoutStopSec=%d
LimitNOFILE=65536
# Weights that are asleep may be locked in memory.
LimitMEMLOCK=infinity
`, strings.Join(words, " "), int(o.Drain.Seconds())+20)
	if o.Dir != "" {
		fmt.Fprintf(&b, "WorkingDirectory=%s\n", strings.ReplaceAll(o.Dir, "%", "%%"))
	}
	if o.System {
		b.WriteString(systemPart)
	}
	b.WriteString(closedPart)
	if o.System {
		b.WriteString("\n[Install]\nWantedBy=multi-user.target\n")
	} else {
		b.WriteString("\n[Install]\nWantedBy=default.target\n")
	}
	return b.String()
}

// systemPart is for the system's manager only.
const systemPart = `
DynamicUser=yes
User=rouse
StateDirectory=rouse
CacheDirectory=rouse
ConfigurationDirectory=rouse
RuntimeDirectory=rouse
RuntimeDirectoryMode=0700
Environment=HOME=/var/lib/rouse XDG_CONFIG_HOME=/etc XDG_STATE_HOME=/var/lib XDG_CACHE_HOME=/var/cache XDG_RUNTIME_DIR=/run
# Groups that own a GPU's nodes, where there are such groups: SupplementaryGroups=video render

ProtectSystem=strict
# Models may lie in somebody's home, if their files let this user read them.
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
CapabilityBoundingSet=
UMask=0077
`

const closedPart = `
# Devices stay open: a GPU's nodes are made when it is first used. Memory that is written may be run: CUDA compiles kernels.
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
# The last three are how processes of one model share a GPU's memory (NCCL, PyTorch).
SystemCallFilter=@system-service pidfd_getfd process_vm_readv process_vm_writev
SystemCallErrorNumber=EPERM
`

// quotedWord quotes a word of a systemd command line, in which % is special.
func quotedWord(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if word != "" && !strings.ContainsAny(word, " \t\"'\\;") {
		return word
	}
	return strconv.Quote(word)
}

const launchdLabel = "dev.rouse.up"

func launchdPlist(o serviceOptions, logs string) string {
	var b bytes.Buffer
	text := func(s string) string {
		var e bytes.Buffer
		_ = xml.EscapeText(&e, []byte(s)) // to memory
		return e.String()
	}
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- %s -->
<plist version="1.0">
<dict>
	<key>Label</key><string>%s</string>
	<key>ProgramArguments</key>
	<array>
`, unitMark, launchdLabel)
	for _, w := range o.command() {
		fmt.Fprintf(&b, "\t\t<string>%s</string>\n", text(w))
	}
	if b.WriteString("\t</array>\n"); o.Dir != "" {
		fmt.Fprintf(&b, "\t<key>WorkingDirectory</key><string>%s</string>\n", text(o.Dir))
	}
	fmt.Fprintf(&b, `	<key>RunAtLoad</key><true/>
	<key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
	<key>ExitTimeOut</key><integer>%d</integer>
	<key>ProcessType</key><string>Interactive</string>
	<key>StandardOutPath</key><string>%[2]s</string>
	<key>StandardErrorPath</key><string>%[2]s</string>
</dict>
</plist>
`, int(o.Drain.Seconds())+20, text(filepath.Join(logs, "rouse.log")))
	return b.String()
}
