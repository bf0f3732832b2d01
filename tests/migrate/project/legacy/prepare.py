print "this is Python 2, and clips nothing"
