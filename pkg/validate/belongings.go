// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"path"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Bounds of what a sandbox gets beside its Pod.
const (
	maxFiles     = 32
	maxFileBytes = 1 << 20 // of all contents
	maxPath      = 4096
	maxExecUser  = 256
	defaultMode  = "0644"
)

// Belongings names the fields of a request that the daemon of its sandbox takes, in order.
func Belongings(r *sandboxv1.CreateSandboxRequest) (fields []string) {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"envVars", len(r.GetEnvVars()) > 0}, {"workdir", r.GetWorkdir() != ""}, {"execUser", r.GetExecUser() != ""},
		{"files", len(r.GetFiles()) > 0},
	} {
		if field.given {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// DropBelongings takes from a request what the daemon of its sandbox alone may get.
func DropBelongings(r *sandboxv1.CreateSandboxRequest) {
	r.EnvVars, r.Workdir, r.ExecUser, r.Files = nil, "", "", nil
}

// FileMode returns the permissions of a file.
func FileMode(f *sandboxv1.SandboxFile) string {
	if f.GetMode() == "" {
		return defaultMode
	}
	return f.GetMode()
}

// belongings checks what the daemon of a sandbox takes. As with the environment, no fault has a content; nor a path, which the audit
// would have.
func (f *Faults) belongings(r *sandboxv1.CreateSandboxRequest) {
	fields := Belongings(r)
	if len(fields) == 0 {
		return
	}
	wait := r.GetWait()
	f.Check(wait == sandboxv1.CreateSandboxRequest_WAIT_UNSPECIFIED || wait == sandboxv1.CreateSandboxRequest_READY, "wait", wait.String(),
		"READY, where "+strings.Join(fields, ", ")+" are given: the sandbox gets them once it runs")
	if dir := r.GetWorkdir(); dir != "" {
		f.Check(path.IsAbs(dir) && isPath(dir), "workdir", fmt.Sprintf("%d bytes", len(dir)),
			"an absolute path of at most 4096 bytes, without NUL")
	}
	f.Check(len(r.GetExecUser()) <= maxExecUser && printable(r.GetExecUser()) && !strings.Contains(r.GetExecUser(), ":"), "execUser",
		Clip(r.GetExecUser()), "the name of an account, at most 256 printable bytes without a colon")
	f.Check(len(r.GetFiles()) <= maxFiles, "files", fmt.Sprintf("%d of them", len(r.GetFiles())), "at most 32")
	size := 0
	for i, file := range r.GetFiles() {
		size += len(file.GetContent())
		if i >= maxFiles || len(*f) >= maxVariableFaults {
			continue
		}
		at := fmt.Sprintf("files[%d]", i)
		f.Check(file.GetPath() != "" && isPath(file.GetPath()) && !strings.HasSuffix(file.GetPath(), "/"), at+".path",
			fmt.Sprintf("%d bytes", len(file.GetPath())), "the path of a file, 1 to 4096 bytes without NUL")
		f.Check(file.GetMode() == "" || isMode(file.GetMode()), at+".mode", Clip(file.GetMode()), "octal permissions, 000 to 0777")
	}
	f.Check(size <= maxFileBytes, "files", fmt.Sprintf("%d bytes", size), "at most 1048576 bytes of contents")
}

func isPath(text string) bool { return len(text) <= maxPath && !strings.ContainsRune(text, 0) }

func isMode(text string) bool {
	digits := strings.TrimPrefix(text, "0")
	return len(text) >= 3 && len(text) <= 4 && (len(text) == 3 || len(digits) < len(text)) && strings.Trim(text, "01234567") == ""
}
