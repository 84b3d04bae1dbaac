// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Bounds on what a sandbox's daemon receives.
const (
	maxFiles     = 32
	maxFileBytes = 1 << 20 // of all contents together
	maxPath      = 4096
	maxExecUser  = 256
	maxSecrets   = 32
	defaultMode  = "0644"
)

// DaemonRuntime is the runtime of templates whose Pods have a daemon.
const DaemonRuntime = "e2b"

// Belongings returns the names of the fields in a request that are for the daemon of the sandbox, in order.
func Belongings(r *sandboxv1.CreateSandboxRequest) (fields []string) {
	for _, field := range []struct {
		name  string
		given bool
	}{
		{"envVars", len(r.GetEnvVars()) > 0}, {"workdir", r.GetWorkdir() != ""}, {"execUser", r.GetExecUser() != ""},
		{"files", len(r.GetFiles()) > 0}, {"secrets", len(r.GetSecrets()) > 0},
	} {
		if field.given {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// DropBelongings removes from a request what only the daemon of its sandbox may receive. Secrets stay: they are references, on which the
// worker decides.
func DropBelongings(r *sandboxv1.CreateSandboxRequest) {
	r.EnvVars, r.Workdir, r.ExecUser, r.Files = nil, "", "", nil
}

// NoDaemon returns faults for fields that no daemon receives, because the template does not list DaemonRuntime.
func NoDaemon(fields []string) Faults {
	var f Faults
	for _, field := range fields {
		f.Add(field, "what was given", "none, for an Env whose template does not list the runtime "+DaemonRuntime+": no daemon takes it")
	}
	return f
}

// FileMode returns the permissions of a file, or the default.
func FileMode(f *sandboxv1.SandboxFile) string {
	if f.GetMode() == "" {
		return defaultMode
	}
	return f.GetMode()
}

// belongings checks what is for the daemon of a sandbox. As for the environment, faults contain no content. They contain no paths either,
// because the audit would record these.
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
	f.secrets(r)
	f.Check(size <= maxFileBytes, "files", fmt.Sprintf("%d bytes", size), "at most 1048576 bytes of contents")
}

func (f *Faults) secrets(r *sandboxv1.CreateSandboxRequest) {
	*f = append(*f, Secrets(r.GetSecrets())...)
	for i, ref := range r.GetSecrets()[:min(len(r.GetSecrets()), maxSecrets)] {
		_, twice := r.GetEnvVars()[ref.GetEnv()]
		f.Check(!twice, fmt.Sprintf("secrets[%d].env", i), Clip(ref.GetEnv()), "a variable that envVars do not set")
	}
}

// Secrets returns the faults in references to Secrets.
func Secrets(refs []*sandboxv1.SandboxSecret) Faults {
	var f Faults
	f.Check(len(refs) <= maxSecrets, "secrets", fmt.Sprintf("%d of them", len(refs)), "at most 32")
	seen := map[string]bool{}
	for i, ref := range refs[:min(len(refs), maxSecrets)] {
		at := fmt.Sprintf("secrets[%d]", i)
		f.Check(len(validation.IsEnvVarName(ref.GetEnv())) == 0, at+".env", Clip(ref.GetEnv()),
			"a variable's name of letters, digits, _, - and ., not beginning with a digit")
		f.Check(!seen[ref.GetEnv()], at+".env", Clip(ref.GetEnv()), "each variable once")
		f.Check(len(validation.IsDNS1123Subdomain(ref.GetName())) == 0, at+".name", Clip(ref.GetName()),
			"the name of a Secret in the Env's namespace: a DNS name of at most 253 characters")
		f.Check(len(validation.IsConfigMapKey(ref.GetKey())) == 0, at+".key", Clip(ref.GetKey()),
			"a key of the Secret: letters, digits, -, _ and ., at most 253")
		seen[ref.GetEnv()] = true
	}
	return f
}

func isPath(text string) bool { return len(text) <= maxPath && !strings.ContainsRune(text, 0) }

func isMode(text string) bool {
	digits := strings.TrimPrefix(text, "0")
	return len(text) >= 3 && len(text) <= 4 && (len(text) == 3 || len(digits) < len(text)) && strings.Trim(text, "01234567") == ""
}
