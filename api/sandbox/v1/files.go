// SPDX-License-Identifier: Apache-2.0

package sandboxv1

import "time"

// What REST alone has: files and processes of a sandbox, in JSON. sandbox_openapi.yaml describes it.

// File describes a file or a folder.
type File struct {
	Name       string     `json:"name"`
	Path       string     `json:"path"`
	Type       string     `json:"type"` // FileTypeFile, FileTypeDirectory or FileTypeSymlink
	Size       int64      `json:"size"`
	Mode       string     `json:"mode"` // permissions, octal
	Owner      string     `json:"owner,omitempty"`
	Group      string     `json:"group,omitempty"`
	ModifiedAt *time.Time `json:"modifiedAt,omitempty"`
	LinkTarget string     `json:"linkTarget,omitempty"`
}

// The types of files. A link that leads somewhere has the type of what it leads to.
const (
	FileTypeFile      = "FILE"
	FileTypeDirectory = "DIRECTORY"
	FileTypeSymlink   = "SYMLINK"
)

// FileList is what a folder has.
type FileList struct {
	Files []File `json:"files"`
}

// Written is the response to a write.
type Written struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Unpacked is the response to an archive that was written to a folder.
type Unpacked struct {
	Path  string `json:"path"`
	Files int    `json:"files"` // folders and links included
}

// MakeFolder is a request for a folder.
type MakeFolder struct {
	Path string `json:"path"`
}

// MoveFile is a request to move a file or a folder.
type MoveFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Command is a command to run.
type Command struct {
	Command []string          `json:"command"`
	EnvVars map[string]string `json:"envVars,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Stdin   string            `json:"stdin,omitempty"`
	Timeout string            `json:"timeout,omitempty"` // a duration
}

// CommandExit is how a command ended.
type CommandExit struct {
	ExitCode int32  `json:"exitCode"`         // -1: a signal or the timeout ended it
	Status   string `json:"status,omitempty"` // how a signal ended it
	TimedOut bool   `json:"timedOut,omitempty"`
}

// CommandResult is what a command printed, and how it ended.
type CommandResult struct {
	CommandExit
	PID             uint32 `json:"pid"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdoutTruncated,omitempty"`
	StderrTruncated bool   `json:"stderrTruncated,omitempty"`
}

// CommandStart and CommandOutput are the data of events of a command.
type (
	CommandStart struct {
		PID uint32 `json:"pid"`
	}
	CommandOutput struct {
		Data []byte `json:"data"`
	}
)

// The events of a command that runs. Data is a CommandStart, CommandOutput, CommandExit, or a problem document.
const (
	CommandStarted = "START"
	CommandStdout  = "STDOUT"
	CommandStderr  = "STDERR"
	CommandExited  = "EXIT"
	CommandFailed  = "ERROR"
)

// Process is a process that runs.
type Process struct {
	PID     uint32   `json:"pid"`
	Command []string `json:"command"`
	Workdir string   `json:"workdir,omitempty"`
}

// ProcessList lists processes.
type ProcessList struct {
	Processes []Process `json:"processes"`
}

// Signal is a signal to a process.
type Signal struct {
	Signal string `json:"signal"` // SIGTERM or SIGKILL
}
