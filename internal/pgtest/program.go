package pgtest

// Run makes and starts a server for a program that is not a test, in a directory in
// parent, which others must be able to enter. The program has to Remove it.
func Run(parent string, settings ...string) (*Server, error) {
	s, err := create(parent, settings)
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// PID is the postmaster's, 0 while it is down. The other processes are its children.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}
