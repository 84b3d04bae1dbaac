// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"path"
	"strconv"
	"strings"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
)

// LogFile is the location of a runtime's log.
type LogFile struct {
	Container string
	Path      string // absolute
}

// Log returns the log of a sandbox's runtime, by the runtime's name: the file in its logDir, in the container of the runtimes.
func Log(container string, specs []v1alpha1.SandboxRuntimeSpec, name string) (LogFile, error) {
	var having []string
	for i := range specs {
		r := &specs[i]
		if r.LogDir == "" {
			continue
		}
		if r.Name != name {
			having = append(having, r.Name)
			continue
		}
		if !path.IsAbs(r.LogDir) || strings.ContainsRune(r.LogDir, 0) {
			return LogFile{}, problem.New(problem.NotFound, "logDir of runtime %q is %q, which is no absolute path of a file", name, r.LogDir)
		}
		return LogFile{Container: container, Path: path.Clean(r.LogDir)}, nil
	}
	if len(having) == 0 {
		having = append(having, "none")
	}
	return LogFile{}, problem.New(problem.NotFound, "there is no runtime %q with a log; there are: %s", name, strings.Join(having, ", "))
}

// Tail returns the command that reads the last lines of a log, or all of it for lines < 0, and continues with follow. It runs in
// the log's container, without a shell.
func (l LogFile) Tail(lines int64, follow bool) []string {
	count := "+1"
	if lines >= 0 {
		count = strconv.FormatInt(lines, 10)
	}
	command := []string{"tail", "-n", count}
	if follow {
		command = append(command, "-f")
	}
	return append(command, "--", l.Path)
}
