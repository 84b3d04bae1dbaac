// SPDX-License-Identifier: Apache-2.0

// Package daemon serves a sandbox's processes and files to E2B clients.
//
// In: Connect calls and HTTP, with the sandbox's access token. Out: processes, files, events of both.
//
//	daemon.go     paths, access token, /init, /health, /metrics
//	users.go      a caller's account; its paths and environment
//	process.go    one process: its start, input, signals, end
//	output.go     buffers a process's output for its readers
//	processes.go  the calls of process.Process
//	entries.go    the calls of filesystem.Filesystem
//	move.go       moves to other filesystems
//	watches.go    changes of folders
//	files.go      /files: upload and download
//	archive.go    /archive: a folder as an archive
//	unpack.go     writes the files of an archive
//
// # Rules
//
//   - The first /init sets the token. After that every call but /health needs it, including /init, or for /files a signature:
//     TestTheFirstInitSetsTheToken. Before that, the daemon listens only on loopback, and no process of a tenant runs in the container.
//   - A process outlives the connection that started it: it ends by itself, by a signal, or after Connect-Timeout-Ms.
//   - At most keepBytes of output are kept for connected readers; then the process waits. Without readers the oldest output is dropped.
//   - Processes, watches, events, requests and headers have bounds; files are streamed (I10).
//   - `bash -l -c` runs without -l; because /etc/profile replaces the image's PATH. Images without bash get sh.
//   - All state is in this process; because a container that is started again must have no token, environment or process (I13).
package daemon
