// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command tenant is a sandbox's program in test images: tests ask what it sees, and make it leave data behind.
//
//	tenant [-port 8000] [-tag NAME] serve   serve the paths below (default)
//	tenant exit CODE                        end at once
//	tenant linger                           do nothing
//
// Images differ by -tag (or -ldflags).
//
//	/whoami                    tag, hostname, pid, uid, started, boot (differs per process)
//	/write?path=&data=         write a file
//	/fill?path=&mebibytes=     write a large file
//	/read?path=                a file's content, or 404
//	/xattr?path=[&data=]       write or read an extended attribute
//	/listen?port=              serve on another socket too
//	/spawn                     leave a process in its own session; returns its pid
//	/ps                        [{"pid","command"}] of /proc
//	/ipc?kind=&key=[&data=]    write or read an IPC object (404: none)
//	                           kind: shm, sem (one byte), msg (System V), mq (POSIX)
//	/oom                       take memory until killed
//	/exit?code=                end
package main
