package main

import "syscall"

// endWithThread has the kernel kill the program when the thread that starts it
// ends: a process that is killed has no time to do it.
func endWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
