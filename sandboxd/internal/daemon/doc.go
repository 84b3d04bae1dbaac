// SPDX-License-Identifier: Apache-2.0

// Package daemon serves a sandbox's processes and files to E2B clients.
//
// In: Connect calls and HTTP, with the sandbox's access token. Out: processes, files, events of both.
//
//	daemon.go     paths, access token, /init, /health, /metrics
//	users.go      who a caller acts as; paths and environment of that user
//	process.go    one process: its start, input, signals, end
//	output.go     what a process prints, kept for its readers
//	processes.go  the calls of process.Process
//	entries.go    the calls of filesystem.Filesystem
//	move.go       moves to other filesystems
//	watches.go    changes of folders
//	files.go      /files: upload and download
//
// # Rules
//
//   - The first /init sets the token. After that every call needs it, /init too: TestTheFirstInitSetsTheToken. Before that, the daemon
//     listens
//     at loopback alone, and nothing of a tenant runs in the container.
//   - A process outlives the connection that started it: it ends by itself, by a signal, or after Connect-Timeout-Ms.
//   - Output waits for readers that are connected, at most keepBytes of it; then the process waits. Without readers the oldest is dropped.
//   - Processes, watches, events, requests and headers have bounds; files are streamed (I10).
//   - `bash -l -c` runs without -l; because /etc/profile replaces the image's PATH. Without bash it is sh.
//   - Nothing is kept outside of this process: a container that is started again has no token, environment or process (I13).
package daemon
